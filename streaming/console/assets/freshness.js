// The commit that a page shows, and its age, counted on.
import { h } from "vue";
import { ageText, wholeText } from "/assets/format.js";

export default {
  props: { commit: Object },
  data: () => ({ tick: 0 }),
  mounted() {
    this.timer = setInterval(() => this.tick++, 1000);
  },
  unmounted() {
    clearInterval(this.timer);
  },
  render() {
    void this.tick;
    if (!this.commit) return h("span", { class: "freshness" }, "no commit yet");
    const { sequence, at } = this.commit;
    const time = h("time", { datetime: new Date(at).toISOString(), title: wholeText(at), class: "time" }, ageText(at));
    return h("span", { class: "freshness" }, [h("span", { class: "wide-only" }, `commit ${sequence}`), time]);
  },
};
