// Colours of statistics, from the stops that a chapter brings.

import { blend, channels, luminance } from "../ramp.js";

/** @typedef {import("./types.js").Statistic} Statistic */
/** @typedef {import("../ramp.js").Rgb} Rgb */

export class ColourScale {
  isFitted = false;

  /** @param {import("./types.js").Packed["colours"]} colours */
  constructor({ sequential, diverging }) {
    this.sequential = sequential.map(channels);
    this.diverging = diverging.map(channels);
    this.reversed = [...this.diverging].reverse();  // high values are worse: worse has the same colour everywhere
  }

  /** @param {Statistic} statistic */
  rampOf(statistic) {
    return statistic.reversed ? this.reversed : statistic.diverging ? this.diverging : this.sequential;
  }

  /** The values at both ends of the scale. @param {Statistic} statistic @returns {[low: number, high: number]} */
  limits({ low, high, min, max, diverging }) {
    if (!this.isFitted) return [low, high];
    if (diverging) {
      const extent = Math.max(Math.abs(min), Math.abs(max)) || 1;
      return [-extent, extent];
    }
    return max > min ? [min, max] : [min, min + 1];
  }

  /** @param {Statistic} statistic @param {number} value */
  colourOf(statistic, value) {
    const [low, high] = this.limits(statistic);
    return blend(this.rampOf(statistic), (value - low) / (high - low || 1));
  }
}

/** The colour of text on this background. @param {Rgb} rgb */
export const inkOn = (rgb) => (luminance(rgb) > 0.21 ? "#14212d" : "#fdfdfd");
