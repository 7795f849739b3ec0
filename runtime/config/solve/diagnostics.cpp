#include "runtime/config/solve/diagnostics.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/config/keys/key_table.h"

namespace dstrain {

Verdict* Diagnostics::verdict_on(std::string_view key) {
  for (Verdict& v : verdicts_)
    if (v.key == key) return &v;
  for (const KeySpec& spec : key_table())
    if (spec.alias == key)
      for (Verdict& v : verdicts_)
        if (v.key == spec.key) return &v;
  return nullptr;
}

bool Diagnostics::stopped(std::string_view key) const {
  return std::ranges::any_of(
      verdicts_, [&](const Verdict& v) { return v.key == key && is_error(v.state) && !v.echo; });
}

void Diagnostics::set_verdict(std::string_view key, State state, const std::string& message) {
  if (Verdict* v = verdict_on(key)) {
    if (is_error(v->state) && !v->echo) return;
    v->state = state;
    v->message = message;
    v->echo = false;
    return;
  }
  Verdict v;
  v.key = key;
  v.state = state;
  v.message = message;
  std::string_view section = key;
  SourcePlace place = root_.place;
  while (section.find('.') != std::string_view::npos) {
    section = section.substr(0, section.rfind('.'));
    if (const Member* m = find(root_, section)) {
      place = m->place;
      break;
    }
  }
  if (place.source == Source::file) {
    v.line = place.line;
    v.column = place.column;
  }
  v.where = where(names_, place, section);
  verdicts_.push_back(std::move(v));
}

void Diagnostics::warning(std::string_view key, const std::string& message) {
  const Verdict* v = verdict_on(key);
  warnings_.push_back(fmt::format("{}: {}: {}", v ? v->where : names_.file, key, message));
}

void Diagnostics::explain(std::string_view key, const std::string& message) {
  if (Verdict* v = verdict_on(key); v && v->message.empty()) v->message = message;
}

}  // namespace dstrain
