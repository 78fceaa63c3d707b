// How a desktop is shown: fitted to the window or in its own size, and how good its picture is.

const KEPT = "fumarole-desktop-look";
// Of JPEG, where the desktop sends it, and of compression: from 0 to 9 each.
const QUALITIES = {
  best: { quality: 9, compression: 1 },
  balanced: { quality: 6, compression: 2 },
  small: { quality: 1, compression: 6 },
};

/** Returns what was chosen before; nothing of it may end the page. */
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
    // Then it is for this page alone.
  }
}

/** The controls of the bar; current() returns the desktop that is shown, if there is one. */
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

  /** A touch keyboard covers a part of the window, or does not any more: that is no new size. */
  cover(covered) {
    this.covered = covered;
    this.show();
  }

  show() {
    this.fitButton.setAttribute("aria-pressed", String(this.look.fit));
    const desktop = this.current();
    if (desktop) this.apply(desktop);
  }

  /** Has a desktop shown as it was chosen; where it cannot take the window's size, it is scaled. */
  apply(desktop) {
    const { fit, quality } = this.look;
    desktop.scaleViewport = fit;
    desktop.clipViewport = !fit;
    desktop.dragViewport = !fit;
    desktop.resizeSession = fit && !this.covered;
    desktop.qualityLevel = QUALITIES[quality].quality;
    desktop.compressionLevel = QUALITIES[quality].compression;
  }
}
