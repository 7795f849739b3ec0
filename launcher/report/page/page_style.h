// The style sheet and the script of a page.
#pragma once

namespace dstrain::report {

inline constexpr const char* kPageStyle = R"(
:root{color-scheme:light dark;--ground:#f5f6f8;--card:#fff;--ink:#1c2128;--quiet:#5b6370;--rule:#dfe3e8;
--accent:#0069ad;--good:#00734f;--busy:#8a5a00;--shadow:0 1px 2px rgba(20,28,40,.07)}
@media (prefers-color-scheme:dark){:root{--ground:#0f1216;--card:#181c22;--ink:#e6e9ee;--quiet:#9aa4b2;
--rule:#2b323b;--accent:#56a8ee;--good:#35c79c;--busy:#ecc04e;--shadow:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:1560px;margin:0 auto;padding:28px 24px 48px}
header{margin-bottom:20px}
.brand{font-size:13px;color:var(--quiet);letter-spacing:.02em;margin:0 0 4px}
h1{font-size:26px;line-height:1.25;font-weight:650;margin:0;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:17px;font-weight:650;margin:34px 0 12px}
h3{font-size:14px;font-weight:600;margin:18px 0 8px;overflow-wrap:anywhere}
p{margin:6px 0}
.about,.quiet,.lines{color:var(--quiet)}
.about{overflow-wrap:anywhere}
.lines{font-size:13.5px;margin-top:10px}
.state{display:inline-block;border-radius:99px;padding:1px 10px;font-size:12.5px;font-weight:600;
border:1px solid currentColor;color:var(--quiet);vertical-align:3px;margin-left:8px;white-space:nowrap}
.state.done{color:var(--good)}.state.busy{color:var(--busy)}
.bar{height:6px;border-radius:3px;background:var(--rule);overflow:hidden;margin:14px 0 0;max-width:560px}
.bar i{display:block;height:100%;background:var(--accent)}
.cards{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));margin:22px 0 0}
.card,figure,.box{background:var(--card);border:1px solid var(--rule);border-radius:10px;box-shadow:var(--shadow)}
.card{padding:12px 14px;min-width:0}
.card b{display:block;font-size:22px;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums;
letter-spacing:-.01em;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.card span{display:block;color:var(--quiet);font-size:12.5px;line-height:1.4}
.plots{columns:430px 3;column-gap:14px}
figure{margin:0 0 14px;padding:6px;position:relative;break-inside:avoid}
figure svg{display:block;width:100%;height:auto}
.narrow{display:none}
figure input{position:absolute;opacity:0;pointer-events:none}
.scale{display:flex;gap:2px;justify-content:flex-end;padding:2px 8px 6px}
.scale label{font-size:12px;color:var(--quiet);padding:1px 9px;border-radius:99px;cursor:pointer;
border:1px solid transparent}
.in-lin:checked~.scale .for-lin,.in-log:checked~.scale .for-log{color:var(--ink);border-color:var(--rule);
background:var(--ground)}
figure input:focus-visible~.scale{outline:2px solid var(--accent);outline-offset:-2px;border-radius:8px}
.in-lin:checked~.log,.in-log:checked~.lin{display:none}
.box{overflow-x:auto;margin:0 0 12px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:left;border-top:1px solid var(--rule);vertical-align:top}
tr:first-child>*{border-top:0}
th{font-weight:600;color:var(--quiet);white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap}
th.below{padding-left:28px;font-weight:400}th.name{color:var(--ink)}.overview{margin-top:20px;width:fit-content;
max-width:100%;min-width:min(100%,520px)}
td.k{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12.5px;overflow-wrap:anywhere;
min-width:120px}
td.o{color:var(--quiet);overflow-wrap:anywhere}
.swatch{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px;vertical-align:-1px}
details>summary{cursor:pointer;color:var(--quiet);font-size:13.5px;padding:4px 0;overflow-wrap:anywhere}
details>summary:hover{color:var(--ink)}
details[open]>summary{margin-bottom:6px}
ul{margin:6px 0;padding-left:20px}
li{margin:3px 0;overflow-wrap:anywhere}
footer{margin-top:36px;padding-top:14px;border-top:1px solid var(--rule);color:var(--quiet);font-size:13px;
overflow-wrap:anywhere}
@media (max-width:760px){main{padding:18px 12px 36px}h1{font-size:21px}.full{display:none}.narrow{display:block}
.cards{gap:8px;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));margin-top:16px}
.card{padding:9px 11px}.card b{font-size:18px}th,td{padding:5px 9px}h2{margin-top:26px}}
@media print{body{background:#fff}.card,figure,.box{break-inside:avoid;box-shadow:none}.scale{display:none}}
)";

// Asks every two seconds for the page, and puts a newer one in the place of this one. What the reader has opened stays
// open.
inline constexpr const char* kRefreshScript = R"("use strict";
let tag = "";
function keep(page) {
  for (const old of document.querySelectorAll("input[id], details[id]")) {
    const now = page.getElementById(old.id);
    if (!now) continue;
    if (old.type === "radio") now.toggleAttribute("checked", old.checked);
    else now.toggleAttribute("open", old.open);
  }
}
function say(text) {
  const line = document.getElementById("served");
  if (line) line.textContent = text;
}
async function look() {
  try {
    const answer = await fetch("/", {cache: "no-store", headers: tag ? {"If-None-Match": tag} : {}});
    if (answer.status === 200) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      tag = answer.headers.get("ETag") || "";
      keep(page);
      document.title = page.title;
      document.querySelector("main").replaceWith(page.querySelector("main"));
    }
    say("This page refreshes itself.");
  } catch (problem) {
    say("dstrain watch has ended, or does not answer: this page is no longer refreshed.");
  }
  setTimeout(look, document.hidden ? 10000 : 2000);
}
setTimeout(look, 2000);
)";

}  // namespace dstrain::report
