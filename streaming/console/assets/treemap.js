// Tiles as links: they take focus and clicks as any link does, and say aloud what they show.
import { h } from "vue";

// A domain is drawn with what is in it where that has so much room, in pixels.
const [INNER_WIDE, INNER_HIGH] = [96, 72];

export default {
  props: { label: String, tiles: Array, omitted: Number },
  data: () => ({ wide: 1000, high: 400 }),
  mounted() {
    this.observer = new ResizeObserver(() => {
      const picture = this.$el.querySelector("ul.treemap");
      if (picture) [this.wide, this.high] = [picture.clientWidth, picture.clientHeight];
    });
    this.observer.observe(this.$el);
  },
  unmounted() {
    this.observer.disconnect();
  },
  render() {
    if (!this.tiles?.length) return h("div");
    const draw = (tile, wide, high) => {
      const [left, top, width, height] = tile.box;
      const style = { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` };
      const [w, t] = [(wide * width) / 100, (high * height) / 100];
      const roomy = w >= INNER_WIDE && t >= INNER_HIGH;
      const whole = `${tile.name}: ${tile.note}`;
      const link = (kind) => h("a", { href: tile.href, class: [kind, tile.tone], title: whole, "aria-label": whole }, [
        h("span", { class: "tile-name" }, [h("span", { class: "sign", "aria-hidden": "true" }, tile.sign), h("bdi", tile.name)]),
        h("span", { class: "tile-note" }, tile.note),
      ]);
      if (!tile.tiles.length || !roomy) return h("li", { style, key: tile.href }, link("tile"));
      const inner = h("ul", { class: "inner", "aria-label": tile.name }, tile.tiles.map((each) => draw(each, w, t)));
      return h("li", { style, key: tile.href }, h("div", { class: ["domain", tile.tone] }, [link("domain-head"), inner]));
    };
    const tiles = this.tiles.map((tile) => draw(tile, this.wide, this.high));
    const more = this.omitted ? h("p", { class: "soft" }, `${this.omitted} smaller ones are in the table below.`) : null;
    return h("div", [h("ul", { class: "treemap", "aria-label": this.label }, tiles), more]);
  },
};
