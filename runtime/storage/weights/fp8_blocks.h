// Weights of 8-bit floats, e4m3 (Micikevicius et al., 2022) without infinities, as files of DeepSeek-V3 have them: a matrix and, in a
// tensor of its own, an f32 scale for each block of 128 x 128 elements, the last ones of a row or a column being smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/storage/weights/weight_files.h"

namespace dstrain {

inline constexpr int64_t kFp8Block = 128;

// Returns the value of an element: of the 256 patterns 2 are no number.
float from_e4m3(uint8_t bits);

// Returns the name of the tensor of scales of a weight.
std::string name_of_scales(const std::string& weight);

// Returns whether a tensor of a file is of 8-bit floats.
bool is_fp8(const SafetensorsTensor& tensor);

// Returns what is wrong with a weight of 8-bit floats or its scales, which the files may lack; empty: nothing is.
std::string fp8_problem(const std::string& name, const SafetensorsTensor& weight,
                        const std::optional<WeightFiles::Found>& scales);

// Reads elements [first, first + count) of such a weight, as f32: each times the scale of its block. `bytes` is memory that it may
// use. Throws UserError where a file cannot be read.
void read_fp8(const WeightFiles::Found& weight, const WeightFiles::Found& scales, int64_t first,
              int64_t count, float* to, std::vector<uint8_t>& bytes);

}  // namespace dstrain
