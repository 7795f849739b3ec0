// Values: reads values out of the canonical configuration and records each one with its origin.
// Invariant: an illegal value reads as its default, so that the functions that build the Job see legal
// values only; the verdict on the key has reported it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config_request.h"
#include "runtime/config/json/tree.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/loaded_config.h"
#include "runtime/config/read/merge.h"

namespace dstrain {

class Values {
 public:
  // The caller keeps all four alive. Every value that is read is added to `settings`.
  Values(const Node& root, const Facts& facts, const SourceNames& names, Settings& settings)
      : root_(root), facts_(facts), names_(names), settings_(settings) {}

  // Returns the legal value written for `key`, or null: absent, null, "auto" or illegal.
  const Member* given(std::string_view key) const;
  bool is_auto(std::string_view key) const;

  // Return the value of `key`, or its default from the key table.
  double real(std::string_view key);
  int64_t integer(std::string_view key);
  bool flag(std::string_view key);
  std::string text(std::string_view key);
  std::array<double, 2> betas(std::string_view key);
  // Returns what "auto" is for `key` by Hugging Face's TrainingArguments, whether the file says so or not.
  double automatic(std::string_view key) const;
  // Returns the texts of a key that takes one or several; none if it is not given.
  std::vector<std::string> texts(std::string_view key);
  // Returns the numbers of a key that takes one or several; the table's default if it is not given.
  std::vector<double> reals(std::string_view key);

  // The same with `derived` instead of the table's default; `why` names its source in the origin.
  double real(std::string_view key, double derived, std::string_view why);
  int64_t integer(std::string_view key, int64_t derived, std::string_view why);
  bool flag(std::string_view key, bool derived, std::string_view why);
  std::string text(std::string_view key, const std::string& derived, std::string_view why);

  // Records a value that was not read here; `value` is JSON text.
  void record(std::string_view key, std::string value, std::string origin);
  // Returns "ds_config.json:12:5"; `key` must be given.
  std::string origin_of(std::string_view key) const;

 private:
  // Returns and records the value of `key`, or `derived` where it is not given.
  Node resolve(std::string_view key, const Node& derived, const std::string& why);
  // Returns the value of a key that is not given, from the table, and sets `why` to its source.
  Node by_table(std::string_view key, std::string& why) const;
  Node resolve(std::string_view key);

  const Node& root_;
  const Facts& facts_;
  const SourceNames& names_;
  Settings& settings_;
};

}  // namespace dstrain
