// Whether the pointer moves, or the page under it. After a change of the page what comes to lie under a resting pointer was not asked for.

/** @type {{x: number, y: number} | null} where it was last */
let last = null;
let isHeld = false;

for (const name of ["pointerover", "pointermove", "pointerdown"]) {
  addEventListener(name, (event) => {
    const { clientX: x, clientY: y } = /** @type {PointerEvent} */ (event);
    if (x !== last?.x || y !== last.y) isHeld = false;
    last = { x, y };
  }, { capture: true, passive: true });
}

/** The page has changed: what the pointer lies on counts again once it has moved. */
export const hold = () => { isHeld = last !== null; };

/** Nothing is meant by where the pointer lies. */
export const isResting = () => isHeld;
