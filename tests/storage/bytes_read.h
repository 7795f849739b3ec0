// What a test has read.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <string>

namespace dstrain {

// Returns the bytes that this process has asked the system for so far.
inline int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  int64_t value = -1;
  io >> key >> value;
  REQUIRE(key == "rchar:");
  return value;
}

}  // namespace dstrain
