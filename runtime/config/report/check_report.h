// The output of `dstrain check`: the verdicts on all keys of a configuration, as text and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/verdict.h"

namespace dstrain {

// Which keys have a line of their own: those that deserve a look, or all of them.
enum class CheckLines { notable, all };

// Returns a line per key, and a last line with the number of verdicts by state, and whether the file trains: with errors
// the way on (LoadedConfig::way_on), else the terms on which it does, such as "on 4 ranks once --data names a file". Unless
// `lines` are all, one line names the keys that are honoured without a word, leaving out sections whose keys it names.
std::string check_text(const std::vector<Verdict>& verdicts, CheckLines lines,
                       std::string_view way_on = {}, std::string_view terms = {});

// Returns a JSON array with an object per key (docs/formats.md, check --json).
std::string check_json(const std::vector<Verdict>& verdicts);

}  // namespace dstrain
