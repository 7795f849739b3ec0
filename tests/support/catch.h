#pragma once

namespace dstrain {

// Runs the test cases of this program as the command line asks; returns the exit status.
int run_tests(int argc, char** argv);

}  // namespace dstrain
