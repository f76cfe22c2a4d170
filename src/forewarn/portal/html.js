// Templates: html`<p>${text}</p>` makes elements. Text is never parsed as HTML, and cannot change how text beside it reads:
// characters that nobody sees (controls, changes of direction, widths of zero) are shown as escapes. Times in sentences
// of the service, which are in UTC, are shown in the reader's zone as well.
import { h, options } from "preact";
import htm from "htm";
import { inZone } from "./parts/text.js";

const UNSEEN = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu; // joiners are part of words and emoji

/** @param {string} character */
const escape = (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`;

options.vnode = (node) => {
  if (node.type === null && typeof node.props === "string") node.props = /** @type {any} */ (inZone(/** @type {string} */ (node.props).replace(UNSEEN, escape)));
};

export const html = /** @type {(strings: TemplateStringsArray, ...values: portal.Value[]) => portal.Children} */ (htm.bind(h));
