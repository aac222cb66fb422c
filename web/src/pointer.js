// Whether the pointer moved, or only the page under it. When the page changes, new elements come to lie under a resting pointer;
// their pointer events are then not meant by the user.

/** @type {{x: number, y: number} | null} its last position */
let last = null;
let isHeld = false;

for (const name of ["pointerover", "pointermove", "pointerdown"]) {
  addEventListener(name, (event) => {
    const { clientX: x, clientY: y } = /** @type {PointerEvent} */ (event);
    if (x !== last?.x || y !== last.y) isHeld = false;
    last = { x, y };
  }, { capture: true, passive: true });
}

/** The page has changed: ignore what lies under the pointer until it moves. */
export const hold = () => { isHeld = last !== null; };

/** Whether the pointer has not moved since the page changed. */
export const isResting = () => isHeld;
