// A page that is refused for want of access: opens once its user has opened the session elsewhere.
import { reloadOnceSignedIn } from "./state.js";

reloadOnceSignedIn();
