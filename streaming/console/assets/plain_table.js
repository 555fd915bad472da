// A short table as it is given: without search, sorting or pages. Every value becomes a text node.
import { h } from "vue";

function draw(cell) {
  if (cell === null || typeof cell !== "object") return String(cell ?? "–");
  if (cell.statuses) {
    return cell.statuses.map(({ tone, sign, text }) =>
      h("span", { class: ["status", tone] }, [h("span", { class: "sign", "aria-hidden": "true" }, sign), h("span", text)]));
  }
  const name = h("bdi", { class: ["name", { whole: cell.whole }], title: cell.name }, cell.name);
  return cell.href ? h("a", { href: cell.href }, [name]) : name;
}

export default {
  props: { caption: String, heads: Array, rows: Array },
  render() {
    const heads = this.heads.map((head) => h("th", { scope: "col", role: "columnheader" }, head));
    // With their roles said, rows that narrow screens draw as blocks are still those of a table.
    const rows = this.rows.map((row, index) => h("tr", { key: index, role: "row" }, row.map((cell, n) => {
      const drawn = [draw(cell)].flat();
      if (n === 0) return h("th", { scope: "row", role: "rowheader" }, drawn);
      return h("td", { role: "cell", "data-label": this.heads[n] }, drawn);
    })));
    const table = h("table", { role: "table" }, [
      h("caption", { class: "hidden" }, this.caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
      h("tbody", { role: "rowgroup" }, rows),
    ]);
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.caption }, [table]);
  },
};
