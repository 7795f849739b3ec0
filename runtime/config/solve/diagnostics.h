// Diagnostics: where the solving functions report what a key alone cannot show: errors, keys without
// effect, warnings. A report changes the verdict on its key, so that each key keeps exactly one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/json/tree.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/verdict.h"

namespace dstrain {

class Diagnostics {
 public:
  // The caller keeps all four alive.
  Diagnostics(const Node& root, const SourceNames& names, std::vector<Verdict>& verdicts,
              std::vector<std::string>& warnings)
      : root_(root), names_(names), verdicts_(verdicts), warnings_(warnings) {}

  using Keys = std::initializer_list<std::string_view>;

  // Sets the verdict on `key`. A verdict that stops the run already stays as it is. If the file does not
  // have the key, the verdict gets the place of the section that lacks it.
  void error(std::string_view key, const std::string& message) {
    set_verdict(key, State::error, message);
  }
  // The same for what the values of other keys, `of`, contradict together with `key`. Does nothing if one of them has
  // an error: its default was used instead, and what follows from that is no fault of the configuration.
  void error(std::string_view key, const std::string& message, Keys of) {
    if (!stopped(of)) error(key, message);
  }
  // The same as the first, for a contradiction that `settings` ("KEY=VALUE") resolve.
  void contradiction(std::string_view key, const std::string& message,
                     std::vector<std::string> settings);
  void no_effect(std::string_view key, const std::string& message) {
    set_verdict(key, State::no_effect, message);
  }
  // Adds a warning for rank 0 to print.
  void warning(std::string_view key, const std::string& message);
  // Adds a warning for each verdict that is one, then each other warning to the message of the verdict on its key,
  // for dstrain check. The last call.
  void finish();
  // Sets the message of the verdict on `key` if it has none.
  void explain(std::string_view key, const std::string& message);
  // Returns whether the verdict on `key` stops the run.
  bool stopped(std::string_view key) const;
  // Returns whether the verdict on one of `keys` stops the run.
  bool stopped(Keys keys) const;

 private:
  struct Warning {
    std::string key, message;
  };

  // Returns the verdict on `key`, or on the old name under which the file has it, or null.
  Verdict* verdict_on(std::string_view key);
  void set_verdict(std::string_view key, State state, const std::string& message);

  const Node& root_;
  const SourceNames& names_;
  std::vector<Verdict>& verdicts_;
  std::vector<std::string>& warnings_;
  std::vector<Warning> warned_;  // the same warnings, without places
};

}  // namespace dstrain
