// The look of a desktop: fitted to the window or in its own size, and the picture quality.

const KEPT = "fumarole-desktop-look";
// JPEG quality, if the desktop sends JPEG, and compression level, each from 0 to 9.
const QUALITIES = {
  best: { quality: 9, compression: 1 },
  balanced: { quality: 6, compression: 2 },
  small: { quality: 1, compression: 6 },
};

// A finger moves a picture that is larger than the window. A mouse has scroll bars for that, and its
// drags are the desktop's.
const IS_TOUCHED = matchMedia("(pointer: coarse)").matches;

/** Returns the stored choice, or the default if there is none that is valid; never throws. */
function kept() {
  try {
    const { fit, quality } = JSON.parse(localStorage.getItem(KEPT)) ?? {};
    return { fit: fit !== false, quality: Object.hasOwn(QUALITIES, quality) ? quality : "balanced" };
  } catch {
    return { fit: true, quality: "balanced" };
  }
}

function keep(look) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(look));
  } catch {
    // Without storage the choice holds for this page only.
  }
}

/** The controls in the bar; current() returns the connected desktop, if any. */
export class Look {
  constructor(current) {
    this.current = current;
    this.look = kept();
    this.covered = false;
    this.fitButton = document.querySelector("#scale");
    this.qualities = document.querySelector("#quality");
    this.qualities.value = this.look.quality;
    this.fitButton.onclick = () => {
      this.current()?.forgetSize();
      this.choose({ fit: !this.look.fit });
      this.current()?.focus();
    };
    this.qualities.onchange = () => {
      this.choose({ quality: this.qualities.value });
      this.current()?.showAgain();
    };
    this.show();
  }

  choose(what) {
    Object.assign(this.look, what);
    keep(this.look);
    this.show();
  }

  /** Notes whether a touch keyboard covers a part of the window, which requests no new size. */
  cover(covered) {
    this.covered = covered;
    this.show();
  }

  show() {
    this.fitButton.setAttribute("aria-pressed", String(this.look.fit));
    const desktop = this.current();
    if (desktop) this.apply(desktop);
  }

  /** Applies the choice to a desktop, which is scaled if it cannot take the window's size. */
  apply(desktop) {
    const { fit, quality } = this.look;
    desktop.scaleViewport = fit;
    desktop.clipViewport = desktop.dragViewport = !fit && IS_TOUCHED;
    desktop.resizeSession = fit && !this.covered;
    desktop.qualityLevel = QUALITIES[quality].quality;
    desktop.compressionLevel = QUALITIES[quality].compression;
  }
}
