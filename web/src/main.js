// Entry point of the explorer: loads the description of the models, and the study if there is one, then starts the page.

import * as api from "./api.js";
import { $ } from "./dom.js";
import { shortName } from "./heads.js";
import { startLive } from "./live.js";
import { startPage } from "./page.js";
import { loadStudy } from "./study.js";

try {
  const about = await api.about();
  $("model").textContent = about.models.map(shortName).join(" and ");
  $("model").title = about.models.map(({ name }) => name).join(" and ");
  document.title = `${shortName(about.models[0])}: headscope explorer`;
  if (about.study) await loadStudy();
  startPage(about.models, api.attend, startLive(about));
} catch (reason) {
  $("error").textContent = reason instanceof Error ? reason.message : String(reason);
  $("error").hidden = false;
}
