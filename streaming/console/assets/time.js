// A <time> in the viewer's zone; the whole of it, with UTC, on hover and for screen readers.
import { h } from "vue";
import { ageText, shortText, wholeText } from "/assets/format.js";

export default {
  props: { at: Number, relative: Boolean },
  data: () => ({ tick: 0 }),
  mounted() {
    if (this.relative) this.timer = setInterval(() => this.tick++, 1000);
  },
  unmounted() {
    clearInterval(this.timer);
  },
  render() {
    void this.tick;
    const text = this.relative ? ageText(this.at) : shortText(this.at);
    const attributes = { datetime: new Date(this.at).toISOString(), title: wholeText(this.at), class: "time" };
    return h("time", attributes, text);
  },
};
