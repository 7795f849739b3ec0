#include "tests/support/catch.h"

int main(int argc, char** argv) {
  return dstrain::run_tests(argc, argv);
}
