// The general ops and their gradients against PyTorch in double precision: a few dozen cases of tests/golden, and where
// PyTorch is installed thousands of new ones.
#include <cstdlib>
#include <fstream>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/general/json_case.h"
#include "tests/support/skip.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain::parity {
namespace {

// Checks the cases of a file that the sample takes. Returns how many cases the file has.
int check_cases(const std::string& path, Sample sample) {
  std::ifstream file(path);
  REQUIRE(file);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!sample.takes()) continue;
    const json c = json::parse(line);
    INFO("line " << number << ", " << c.at("op") << " of " << c.at("dtype") << " to "
                 << c.at("result"));
    JsonCase(c).check();
  }
  return number;
}

TEST_CASE("general ops and their gradients are PyTorch's") {
  CHECK(check_cases(source_file("tests/golden/general_ops/general_ops.jsonl"),
                    sample_if_emulated(2)) >= 72);
}

TEST_CASE("general ops and their gradients are PyTorch's in 500 random cases of each") {
  SKIP_UNLESS(!test_device().is_emulated(), "the cases take minutes on the emulated device");
  const char* const named = std::getenv("DSTRAIN_TRANSFORMERS_PYTHON");
  const std::string python = named ? named : source_file(".deps/transformers/bin/python");
  const std::string with_torch = fmt::format("'{}' -c 'import torch' > /dev/null 2>&1", python);
  SKIP_UNLESS(std::system(with_torch.c_str()) == 0,
              "no Python with torch (tests/hugging_face/README.md)");
  const TempDir folder;
  const std::string command =
      fmt::format("'{}' '{}' '{}' --cases 500", python,
                  source_file("tests/golden/general_ops/general_ops.py"), folder / "cases.jsonl");
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(check_cases(folder / "cases.jsonl", Sample(1)) == 9 * 500);
}

}  // namespace
}  // namespace dstrain::parity
