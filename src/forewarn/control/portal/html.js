// Templates: html`<p>${text}</p>` makes elements. Text is never parsed as HTML, and cannot change how text beside it reads:
// characters that nobody sees (controls, changes of direction, widths of zero) are shown as escapes.
import { h } from "preact";
import htm from "htm";

const UNSEEN = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu; // joiners are part of words and emoji

const escape = (character) => `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;

export const visible = (text) => (typeof text === "string" ? text.replace(UNSEEN, escape) : text);

export const html = htm.bind((type, properties, ...children) => h(type, properties, ...children.map(visible)));
