// Judge: a verdict for every key of a merged tree. Stands on the key table. Problems is where the rest
// of the configuration adds what one key alone cannot show.
// Invariant: every key of the tree has exactly one verdict, in the order of the tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/key_table.h"
#include "runtime/config/load.h"
#include "runtime/config/merge.h"

namespace dstrain {

// Verdicts on all keys of the merged tree; `facts` are those of its canonical form.
std::vector<Verdict> judge(const Merged& merged, const Facts& facts);

class Problems {
 public:
  Problems(const Node& root, const SourceNames& names, std::vector<Verdict>& verdicts,
           std::vector<std::string>& warnings)
      : root_(root), names_(names), verdicts_(verdicts), warnings_(warnings) {}

  // Makes `message` the verdict on `key`, at its place or at that of the section it is missing from;
  // a verdict that stops a run already stays as it is.
  void error(std::string_view key, const std::string& message) { say(key, State::error, message); }
  void no_effect(std::string_view key, const std::string& message) {
    say(key, State::no_effect, message);
  }
  // For rank 0 to print.
  void warning(std::string_view key, const std::string& message);
  // Gives a verdict without a message one.
  void explain(std::string_view key, const std::string& message);
  bool stopped(std::string_view key) const;  // `key` has a verdict that stops a run

 private:
  Verdict* verdict_on(std::string_view key);
  void say(std::string_view key, State state, const std::string& message);

  const Node& root_;
  const SourceNames& names_;
  std::vector<Verdict>& verdicts_;
  std::vector<std::string>& warnings_;
};

}  // namespace dstrain
