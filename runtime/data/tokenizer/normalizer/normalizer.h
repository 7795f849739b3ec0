// Normalizer: the changes that a tokenizer.json makes to a text before it is divided into pieces, exactly as the tokenizers
// library makes them.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/data/tokenizer/normalizer/text_map.h"

namespace dstrain {

// Puts a text into normalization form C.
struct NormalizeNfc {};

// Puts `text` in front of a text that is not empty.
struct NormalizePrepend {
  std::string text;
  bool unless_there = false;  // not in front of one that begins with it
};

// Puts `content` in the place of each `pattern`, from the left; neither is empty.
struct NormalizeReplace {
  std::string pattern, content;
};

using NormalizerStep = std::variant<NormalizeNfc, NormalizePrepend, NormalizeReplace>;

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}

  // Returns `text`, valid UTF-8, with the changes of all steps: itself where nothing changes, else `scratch`, which gets
  // the changed text. Where `maps` is not null, it gets a map of each step that changed something, in order. What
  // stands in front of the text by NormalizePrepend comes from the text's first character.
  std::string_view apply(std::string_view text, std::string& scratch,
                         std::vector<TextMap>* maps = nullptr) const;
  // The same as a text of its own.
  std::string applied(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace dstrain
