#pragma once

namespace dstrain {

// The exit status of a program all of whose test cases were skipped; ctest then counts the test as skipped.
inline constexpr int kAllSkipped = 77;

// Runs the test cases of this program as the command line asks; returns the exit status.
int run_tests(int argc, char** argv);

}  // namespace dstrain
