// Four lanes of sixty minutes: the darker a minute the more happened in it; the number is on hover,
// and the totals stand beside the lanes.
import { h } from "vue";
import { numberText, shortText } from "/assets/format.js";

export default {
  props: { start: Number, lanes: Array },
  render() {
    if (!this.lanes) return h("div");
    const lanes = this.lanes.map(({ name, counts }) => {
      const most = Math.max(1, ...counts);
      const total = counts.reduce((sum, each) => sum + each, 0);
      const cells = counts.map((count, minute) => {
        const at = this.start + minute * 60000;
        const level = count ? 1 + Math.min(3, Math.floor((3 * count) / most)) : 0;
        return h("span", { class: ["minute", `level-${level}`], title: `${shortText(at)}: ${count} ${name}` });
      });
      return h("div", { class: ["lane", name] }, [
        h("span", { class: "lane-name" }, name),
        h("span", { class: "minutes", role: "img", "aria-label": `${total} ${name} in the last hour` }, cells),
        h("span", { class: "lane-total" }, numberText(total)),
      ]);
    });
    const marks = [0, 15, 30, 45].map((minute) => h("span", shortText(this.start + minute * 60000).replace(/:\d\d$/, "")));
    return h("div", { class: "strip" }, [...lanes, h("div", { class: "lane-marks", "aria-hidden": "true" }, [...marks, h("span", "now")])]);
  },
};
