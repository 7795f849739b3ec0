#include "runtime/config/keys/key_table_markdown.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "models/registry.h"

using namespace dstrain;

TEST_CASE("key table: docs/config-keys.md is the table") {
  const std::string path = std::string(DSTRAIN_SOURCE_DIR) + "/docs/config-keys.md";
  // To write the file anew: DSTRAIN_WRITE_DOCS=1 test_config "key table: docs*"
  if (getenv("DSTRAIN_WRITE_DOCS")) std::ofstream(path) << key_table_markdown(model_registry());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str() == key_table_markdown(model_registry()));
}
