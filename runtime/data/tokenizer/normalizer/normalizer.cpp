#include "runtime/data/tokenizer/normalizer/normalizer.h"

#include "runtime/data/tokenizer/unicode/nfc.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

// Each change() returns false if the step changes nothing in `text`; otherwise `changed` gets the changed text, and `map`,
// if it is not null, where its bytes come from.

bool change(const NormalizeNfc&, std::string_view text, std::string& changed, TextMap* map) {
  if (unicode::surely_nfc(text)) return false;
  if (!map) {
    changed = unicode::nfc(text);
    return true;
  }
  changed.clear();
  for (size_t at = 0; at < text.size();) {
    const unicode::NfcSegment segment = unicode::nfc_segment(text, at);
    const std::string_view part = text.substr(at, segment.end - at);
    const std::string composed = segment.changes ? unicode::nfc(part) : std::string(part);
    if (composed == part)
      map->same(part.size(), at);
    else
      map->changed(composed.size(), {at, segment.end});
    changed += composed;
    at = segment.end;
  }
  return true;
}

bool change(const NormalizePrepend& step, std::string_view text, std::string& changed,
            TextMap* map) {
  if (text.empty() || (step.unless_there && text.starts_with(step.text))) return false;
  changed.assign(step.text).append(text);
  if (map) {
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    map->changed(step.text.size(), {0, static_cast<size_t>(utf8::decode_valid(p).bytes)});
    map->same(text.size(), 0);
  }
  return true;
}

bool change(const NormalizeReplace& step, std::string_view text, std::string& changed,
            TextMap* map) {
  size_t found = text.find(step.pattern);
  if (found == text.npos) return false;
  changed.clear();
  size_t done = 0;
  for (; found != text.npos; found = text.find(step.pattern, done)) {
    changed.append(text, done, found - done).append(step.content);
    if (map) {
      map->same(found - done, done);
      map->changed(step.content.size(), {found, found + step.pattern.size()});
    }
    done = found + step.pattern.size();
  }
  changed.append(text, done);
  if (map) map->same(text.size() - done, done);
  return true;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, std::string& scratch,
                                   std::vector<TextMap>* maps) const {
  std::string next;
  for (const NormalizerStep& step : steps_) {
    TextMap map;
    const bool changes = std::visit(
        [&](const auto& kind) { return change(kind, text, next, maps ? &map : nullptr); }, step);
    if (!changes) continue;
    scratch.swap(next);
    text = scratch;
    if (maps) maps->push_back(std::move(map));
  }
  return text;
}

std::string Normalizer::applied(std::string_view text) const {
  std::string scratch;
  return std::string(apply(text, scratch));
}

}  // namespace dstrain
