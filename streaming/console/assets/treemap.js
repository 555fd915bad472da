// Tiles as links: they take focus and clicks as any link does, and say aloud what they show.
import { h } from "vue";

export default {
  props: { label: String, tiles: Array, omitted: Number },
  render() {
    if (!this.tiles?.length) return h("div");
    const tiles = this.tiles.map((tile) => {
      const [left, top, width, height] = tile.box;
      const style = { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` };
      const small = width < 7 || height < 12;
      return h("li", { style, key: tile.href }, h("a", {
        href: tile.href, class: ["tile", tile.tone, { small }], title: `${tile.name}: ${tile.note}`,
        "aria-label": `${tile.name}: ${tile.note}`,
      }, [
        h("span", { class: "tile-name" }, [h("span", { class: "sign", "aria-hidden": "true" }, tile.sign), h("bdi", tile.name)]),
        h("span", { class: "tile-note" }, tile.note),
      ]));
    });
    const more = this.omitted ? h("p", { class: "soft" }, `${this.omitted} smaller ones are in the table below.`) : null;
    return h("div", [h("ul", { class: "treemap", "aria-label": this.label }, tiles), more]);
  },
};
