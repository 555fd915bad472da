// A table whose rows the server chooses. Every value becomes a text node: nothing here takes HTML.
import { h } from "vue";
import { numberText, shortText, wholeText } from "/assets/format.js";

const name = (text) => h("bdi", { class: "name", title: text }, text);

export default {
  props: {
    caption: String, noun: String, empty: String, searchLabel: String, prefix: String,
    columns: Array, sizes: Array, searched: Boolean, page: Object, tones: Object, signs: Object,
  },
  emits: ["query"],
  data: () => ({ search: null, timer: null }),
  computed: {
    query() { return this.page?.query ?? { search: "", filters: {}, sort: "", page: 0, size: 50 }; },
    filters() { return this.columns.filter((each) => each.words.length); },
    pages() { return Math.max(1, Math.ceil((this.page?.found ?? 0) / this.query.size)); },
  },
  methods: {
    // Asks the server, and writes what is asked into the address, so that it can be shared.
    ask(change) {
      const query = { ...this.query, search: this.search ?? this.query.search, page: 0, ...change };
      const given = { ...query.filters };
      if (query.search) given.q = query.search;
      if (query.sort) given.sort = (query.descending ? "-" : "") + query.sort;
      if (query.page) given.page = query.page + 1;
      if (query.size !== this.sizes[1]) given.size = query.size;
      const address = new URL(window.location.href);
      const own = ["q", "sort", "page", "size", ...this.filters.map((each) => each.name)];
      own.forEach((each) => address.searchParams.delete(this.prefix + each));
      Object.entries(given).forEach(([key, value]) => address.searchParams.set(this.prefix + key, value));
      window.history.replaceState(window.history.state, "", address);
      this.$emit("query", given);
    },
    type(event) {
      this.search = event.target.value;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask({}), 200);
    },
    choose(column, word) {
      const filters = { ...this.query.filters };
      if (word) filters[column] = word;
      else delete filters[column];
      this.ask({ filters });
    },
    sortBy(column) {
      const again = this.query.sort === column;
      if (again && this.query.descending) this.ask({ sort: "", descending: false });
      else this.ask({ sort: column, descending: again });
    },
    reset() {
      this.search = "";
      this.ask({ search: "", filters: {}, sort: "", descending: false });
    },
    status(word) {
      const tone = this.tones[String(word).split(" ")[0]] ?? "";
      const sign = h("span", { class: "sign", "aria-hidden": "true" }, this.signs[tone]);
      return h("span", { class: ["status", tone] }, [sign, h("span", String(word).replaceAll("_", " "))]);
    },
    draw(column, value) {
      if (value === null || value === undefined || value === "") return h("span", { class: "none" }, "–");
      switch (column.kind) {
        case "number": return numberText(value);
        case "time": return h("time", { datetime: new Date(value).toISOString(), title: wholeText(value) }, shortText(value));
        case "status": return this.status(value);
        case "list": return value.length ? h("span", { class: "list" }, value.map(name)) : h("span", { class: "none" }, "–");
        case "percent": {
          const text = `${Math.round(value * 100)} %`;
          const width = { width: `${Math.min(100, value * 100)}%` };
          return h("span", { class: "share" }, [h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: width })), text]);
        }
        case "name": return name(String(value));
        default: return String(value);
      }
    },
    cell(column, cell) {
      const linked = cell !== null && typeof cell === "object" && !Array.isArray(cell);
      const drawn = this.draw(column, linked ? cell.value : cell);
      return linked ? h("a", { href: cell.href }, [drawn]) : drawn;
    },
    controls() {
      const made = [];
      if (this.searched) {
        made.push(h("label", { class: "search" }, [
          h("span", { class: "hidden" }, this.searchLabel),
          h("input", {
            type: "search", placeholder: this.searchLabel, maxlength: 512, autocomplete: "off",
            value: this.search ?? this.query.search, onInput: this.type,
          }),
        ]));
      }
      for (const each of this.filters) {
        const options = ["", ...each.words].map((word) =>
          h("option", { value: word, selected: word === (this.query.filters[each.name] ?? "") }, word || "any"));
        made.push(h("label", { class: "filter" }, [
          h("span", each.label),
          h("select", { onChange: (event) => this.choose(each.name, event.target.value) }, options),
        ]));
      }
      const asked = this.query.search || this.query.sort || Object.keys(this.query.filters).length;
      if (asked) made.push(h("button", { type: "button", class: "quiet", onClick: this.reset }, "Reset"));
      return made.length ? h("div", { class: "controls", role: "search" }, made) : null;
    },
    heading(each) {
      const here = this.query.sort === each.name;
      const order = here ? (this.query.descending ? "descending" : "ascending") : "none";
      const kinds = [`k-${each.kind}`, { wide: each.wide, fixed: !each.sortable }];
      const attributes = { scope: "col", role: "columnheader", class: kinds, title: each.hint };
      if (!each.sortable) return h("th", attributes, each.label);
      const arrow = h("span", { class: "arrow", "aria-hidden": "true" }, here ? (this.query.descending ? "▼" : "▲") : "");
      const button = h("button", { type: "button", onClick: () => this.sortBy(each.name) }, [each.label, arrow]);
      return h("th", { ...attributes, "aria-sort": order }, button);
    },
    pager() {
      const { page, size } = this.query;
      const step = (label, to, off) => h("button", {
        type: "button", disabled: off, "aria-label": label.words, title: label.words, onClick: () => this.ask({ page: to }),
      }, label.sign);
      const last = this.pages - 1;
      const sizes = h("label", { class: "filter" }, [
        h("span", "Rows"),
        h("select", { onChange: (event) => this.ask({ size: Number(event.target.value) }) },
          this.sizes.map((each) => h("option", { value: each, selected: each === size }, String(each)))),
      ]);
      return h("div", { class: "pager" }, [
        sizes,
        h("nav", { "aria-label": `Pages of ${this.noun}` }, [
          step({ sign: "«", words: "First page" }, 0, page === 0),
          step({ sign: "‹", words: "Previous page" }, page - 1, page === 0),
          h("span", { "aria-live": "polite" }, `${numberText(page + 1)} of ${numberText(this.pages)}`),
          step({ sign: "›", words: "Next page" }, page + 1, page >= last),
          step({ sign: "»", words: "Last page" }, last, page >= last),
        ]),
      ]);
    },
  },
  render() {
    if (!this.page) return h("div", { class: "data-table" });
    const { rows, found, total } = this.page;
    const count = found === total ? `${numberText(total)} ${this.noun}` : `${numberText(found)} of ${numberText(total)} ${this.noun}`;
    // With their roles said, rows that narrow screens draw as blocks are still those of a table.
    const body = rows.map((row, index) => h("tr", { key: index, role: "row" }, row.map((cell, n) => {
      const column = this.columns[n];
      const attributes = { class: [`k-${column.kind}`, { wide: column.wide }], "data-label": column.label };
      return n === 0 ? h("th", { scope: "row", role: "rowheader", ...attributes }, [this.cell(column, cell)]) : h("td", { role: "cell", ...attributes }, [this.cell(column, cell)]);
    })));
    const table = h("table", { role: "table" }, [
      h("caption", { class: "hidden" }, this.caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.columns.map(this.heading))),
      h("tbody", { role: "rowgroup" }, body),
    ]);
    const none = found ? null : h("p", { class: "empty" }, total ? "Nothing matches what is asked for." : this.empty);
    return h("div", { class: "data-table" }, [
      h("div", { class: "head" }, [this.controls(), h("span", { class: "count", role: "status" }, count)]),
      found ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.caption }, table) : none,
      found > this.sizes[0] ? this.pager() : null,
    ]);
  },
};
