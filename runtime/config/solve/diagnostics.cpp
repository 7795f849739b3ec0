#include "runtime/config/solve/diagnostics.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/config/keys/table/key_table.h"

namespace dstrain {
namespace {

// Returns whether `v` is a verdict on the key at `path`. An unknown key is at the same path if its own name has dots.
bool is_on(const Verdict& v, std::string_view path) {
  return v.key == path && v.state != State::unknown;
}

}  // namespace

Verdict* Diagnostics::verdict_on(std::string_view key) {
  for (Verdict& v : verdicts_)
    if (is_on(v, key)) return &v;
  for (const KeySpec& spec : common_keys())
    if (spec.alias == key)
      for (Verdict& v : verdicts_)
        if (is_on(v, spec.key)) return &v;
  return nullptr;
}

bool Diagnostics::stopped(std::string_view key) const {
  const auto stops = [this](std::string_view name) {
    return std::ranges::any_of(verdicts_, [name](const Verdict& v) {
      return is_on(v, name) && is_error(v.state) && !v.echo;
    });
  };
  return stops(key) || std::ranges::any_of(common_keys(), [&](const KeySpec& spec) {
           return spec.alias == key && stops(spec.key);
         });
}

bool Diagnostics::stopped(Keys keys) const {
  return std::ranges::any_of(keys, [this](std::string_view key) { return stopped(key); });
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

void Diagnostics::contradiction(std::string_view key, const std::string& message,
                                std::vector<std::string> settings) {
  if (stopped(key)) return;
  error(key, message);
  verdict_on(key)->settings = std::move(settings);
}

void Diagnostics::warning(std::string_view key, const std::string& message) {
  const Verdict* v = verdict_on(key);
  warnings_.push_back(fmt::format("{}: {}: {}", v ? v->where : names_.file, key, message));
  warned_.push_back({std::string(key), message});
}

void Diagnostics::finish() {
  for (const Verdict& v : verdicts_)
    if (!is_error(v.state) && ((v.warns && !v.echo) || v.message.starts_with("another name of")))
      warnings_.push_back(fmt::format("{}: {}: {}", v.where, v.key, v.message));
  for (const auto& [key, message] : warned_) {
    Verdict* v = verdict_on(key);
    if (!v || is_error(v->state)) continue;
    if (v->message.empty())
      v->message = message;
    else if (!message.ends_with(v->message))  // the reason of no_effect, which the warning repeats
      v->message += "; " + message;
  }
}

void Diagnostics::explain(std::string_view key, const std::string& message) {
  if (Verdict* v = verdict_on(key); v && v->message.empty()) v->message = message;
}

}  // namespace dstrain
