// CUDA's vector types, those that kernels use.
#pragma once

#include <cstdint>

namespace dstrain::emulated {

// CUDA's dim3: the sizes of a grid or a block, or an index in them.
struct dim3 {  // NOLINT(readability-identifier-naming): CUDA's names
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

// NOLINTBEGIN(readability-identifier-naming)
// CUDA's float2: two floats that are read and written together.
struct alignas(8) float2 {
  float x, y;
};
// CUDA's float4: four floats that are read and written together.
struct alignas(16) float4 {
  float x, y, z, w;
};
// CUDA's int2: two ints that are read and written together.
struct alignas(8) int2 {
  int x, y;
};
// CUDA's int4: four ints that are read and written together.
struct alignas(16) int4 {
  int x, y, z, w;
};
// CUDA's uint2: two unsigned ints that are read and written together.
struct alignas(8) uint2 {
  unsigned x, y;
};
// CUDA's uint4: four unsigned ints that are read and written together.
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
// CUDA's double2: two doubles that are read and written together.
struct alignas(16) double2 {
  double x, y;
};
// NOLINTEND(readability-identifier-naming)

constexpr float2 make_float2(float x, float y) {
  return {x, y};
}
constexpr float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
constexpr int2 make_int2(int x, int y) {
  return {x, y};
}
constexpr int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
constexpr uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
constexpr double2 make_double2(double x, double y) {
  return {x, y};
}

}  // namespace dstrain::emulated
