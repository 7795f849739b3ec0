// OrderedTexts: prints texts that come beside each other one after another.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dstrain {

// The first text that has not ended is printed as it comes; the others wait.
class OrderedTexts {
 public:
  explicit OrderedTexts(size_t texts) : texts_(texts) {}

  void add(size_t text, const std::string& more);
  // A line break follows it.
  void end(size_t text);

 private:
  struct Waiting {
    std::string text;
    bool ended = false;
  };
  std::vector<Waiting> texts_;
  size_t first_ = 0;  // that has not ended
};

}  // namespace dstrain
