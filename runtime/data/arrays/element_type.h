// The types of elements that files of arrays have, and their conversion to the dtypes that models read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/dtype.h"

namespace dstrain {

// A type of the elements of an array in a file, little-endian where it has several bytes.
enum class ElementType : uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64
};

int64_t size_of(ElementType type);
std::string_view name_of(ElementType type);  // "bool", "i64"

// Returns whether there are values of the type that `to`, f32 or i32, cannot hold. f32 holds every integer, rounded to the
// nearest value; i32 holds the whole numbers of its range.
bool may_not_fit(ElementType from, DType to);

// Writes `count` elements, at any address, to `to` as f32 or i32. Returns the index of the first one that the dtype cannot
// hold, behind which nothing is written; -1 if there is none.
int64_t convert_elements(ElementType from, const unsigned char* elements, int64_t count,
                         DType dtype, void* to);

// Returns the index of the first of `count` elements that the dtype, f32 or i32, cannot hold; -1 if there is none.
int64_t first_unfit(ElementType from, const unsigned char* elements, int64_t count, DType dtype);

// Returns an element for a message: "3000000000", "0.5".
std::string element_text(ElementType type, const unsigned char* element);

}  // namespace dstrain
