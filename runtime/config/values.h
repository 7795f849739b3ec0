// Values: the run's values out of the canonical tree, each recorded with its origin as it is read.
// Stands on the key table. Invariant: a value that its verdict refused reads as its default, so what
// builds the Job never meets an illegal value, and every reason is reported once, by the judge.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "runtime/config/coerce.h"
#include "runtime/config/key_table.h"
#include "runtime/config/load.h"
#include "runtime/config/merge.h"

namespace dstrain {

class Values {
 public:
  Values(const Node& root, const Facts& facts, const SourceNames& names, Settings& settings)
      : root_(root), facts_(facts), names_(names), settings_(settings) {}

  // The legal value written for `key`, or null: absent, null, "auto" or illegal.
  const Member* given(std::string_view key) const;
  bool is_auto(std::string_view key) const;

  double real(std::string_view key);
  int64_t integer(std::string_view key);
  bool flag(std::string_view key);
  std::string text(std::string_view key);
  std::array<double, 2> betas(std::string_view key);

  // As above, with `derived` in place of the default; `why` is where it comes from.
  double real(std::string_view key, double derived, std::string_view why);
  int64_t integer(std::string_view key, int64_t derived, std::string_view why);
  bool flag(std::string_view key, bool derived, std::string_view why);
  std::string text(std::string_view key, const std::string& derived, std::string_view why);

  void record(std::string_view key, std::string value, std::string origin);
  std::string origin_of(std::string_view key) const;  // "ds_config.json:12:5"; key must be given

 private:
  // The node that holds the value of `key`, recorded; `derived` where it is not given.
  Node resolve(std::string_view key, const Node& derived, const std::string& why);
  Node by_default(std::string_view key) const;

  const Node& root_;
  const Facts& facts_;
  const SourceNames& names_;
  Settings& settings_;
};

Node node_of(double value);
Node node_of(int64_t value);
Node node_of(bool value);
Node node_of(const std::string& value);

}  // namespace dstrain
