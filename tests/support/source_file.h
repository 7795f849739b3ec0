// Files of the source tree that a test reads.
#pragma once

#include <cstdlib>
#include <string>

namespace dstrain {

// Returns the path of `name`, such as "tests/golden/codecs/codecs.json". The tree is the one that the program was built
// from, or DSTRAIN_SOURCES where a program runs on another machine.
inline std::string source_file(const std::string& name) {
  const char* tree = std::getenv("DSTRAIN_SOURCES");
  return std::string(tree ? tree : DSTRAIN_SOURCE_DIR) + "/" + name;
}

}  // namespace dstrain
