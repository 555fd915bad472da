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
    const heads = this.heads.map((head) => h("th", { scope: "col" }, head));
    const rows = this.rows.map((row, index) => h("tr", { key: index }, row.map((cell, n) => {
      const attributes = { "data-label": this.heads[n] };
      return n ? h("td", attributes, [draw(cell)].flat()) : h("th", { scope: "row", ...attributes }, [draw(cell)].flat());
    })));
    const table = h("table", [h("caption", { class: "hidden" }, this.caption), h("thead", h("tr", heads)), h("tbody", rows)]);
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.caption }, table);
  },
};
