#include "launcher/text/ordered_texts.h"

#include <utility>

#include "launcher/process/failure.h"

namespace dstrain {

void OrderedTexts::add(size_t text, const std::string& more) {
  if (more.empty()) return;
  if (text == first_)
    print_result(more);
  else
    texts_[text].text += more;
}

void OrderedTexts::end(size_t text) {
  add(text, "\n");
  texts_[text].ended = true;
  while (first_ < texts_.size() && texts_[first_].ended) {
    if (++first_ < texts_.size()) {
      const std::string waited = std::exchange(texts_[first_].text, {});
      if (!waited.empty()) print_result(waited);
    }
  }
}

}  // namespace dstrain
