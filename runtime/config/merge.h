// Merge: the file, --model, --set and the other options as one tree, later ones on top. Stands on the
// reader. Invariant: every value of the merged tree still knows where it was written.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/config/load.h"
#include "runtime/config/tree.h"

namespace dstrain {

// What places are called in messages.
struct SourceNames {
  std::string file, model_file;
};

// "ds_config.json:12:5", "--set", "--steps": where the value of `key` at `place` was written.
std::string where(const SourceNames& names, const SourcePlace& place, std::string_view key);

// Puts `value` at the dotted `path`, making sections on the way; what stood there goes. False, and
// nothing done, where something on the way is neither a section nor true, false or null.
bool put(Node& root, std::string_view path, Node value);

struct Merged {
  Node root;
  SourceNames names;
  std::map<std::string, std::string> ignored;  // dotted key; "--ignore amp", "dstrain.ignore"
};

// Reads the file of `request` and lays the command line over it. --model replaces the model section
// before --set refines it; the other options come last. Throws SyntaxError for the file's text, and
// UserError for everything else that cannot be read.
Merged merge(const ConfigRequest& request);

// The tree without what is ignored, old names moved to their keys and old forms to today's
// (zero_optimization: true).
Node canonical(const Merged& merged);

}  // namespace dstrain
