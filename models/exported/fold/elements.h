// Elements of any type as numbers to compute with: whole numbers and truth values as 64 bits, fractions of up to 32 bits as
// float, as PyTorch does on CPUs, f64 as double.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "models/exported/fold/budget.h"
#include "models/exported/graph/scalar_type.h"
#include "runtime/core/dtype.h"

namespace dstrain::exported {

template <class T>
T read_as(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Returns a number as another type. A fraction becomes a whole number by dropping what is behind the point, and the
// smallest one if it does not fit, as processors do.
template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, int64_t> && std::is_floating_point_v<From>) {
    const bool fits = value >= From(-0x1p63) && value < From(0x1p63);
    return fits ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
  } else {
    return static_cast<To>(value);
  }
}

// Returns the function that reads an element of a type as a number of type C. Throws LeftError for types that are not
// computed with.
template <class C>
C (*loader_of(ScalarType type))
(const char*) {
  switch (type) {
    case ScalarType::boolean:
      return [](const char* at) { return static_cast<C>(*at != 0); };
    case ScalarType::u8:
      return [](const char* at) { return static_cast<C>(read_as<uint8_t>(at)); };
    case ScalarType::i8:
      return [](const char* at) { return static_cast<C>(read_as<int8_t>(at)); };
    case ScalarType::i16:
      return [](const char* at) { return static_cast<C>(read_as<int16_t>(at)); };
    case ScalarType::i32:
      return [](const char* at) { return static_cast<C>(read_as<int32_t>(at)); };
    case ScalarType::i64:
      return [](const char* at) { return static_cast<C>(read_as<int64_t>(at)); };
    case ScalarType::f16:
      return [](const char* at) { return converted<C>(to_float(read_as<f16>(at))); };
    case ScalarType::bf16:
      return [](const char* at) { return converted<C>(to_float(read_as<bf16>(at))); };
    case ScalarType::f32:
      return [](const char* at) { return converted<C>(read_as<float>(at)); };
    case ScalarType::f64:
      return [](const char* at) { return converted<C>(read_as<double>(at)); };
    case ScalarType::f8_e4m3:
    case ScalarType::f8_e5m2:
      break;
  }
  throw LeftError("values of 8-bit floats are not computed");
}

template <class T, class C>
void write_as(char* at, C value) {
  const T stored = static_cast<T>(value);
  std::memcpy(at, &stored, sizeof stored);
}

template <class T, class C>
void write_whole(char* at, C value) {
  write_as<T>(at, converted<int64_t>(value));
}

// Returns the function that writes a number of type C as an element.
template <class C>
void (*storer_of(ScalarType type))(char*, C) {
  switch (type) {
    case ScalarType::boolean:
      return [](char* at, C value) { *at = static_cast<char>(value != C(0)); };
    case ScalarType::u8:
      return write_whole<uint8_t, C>;
    case ScalarType::i8:
      return write_whole<int8_t, C>;
    case ScalarType::i16:
      return write_whole<int16_t, C>;
    case ScalarType::i32:
      return write_whole<int32_t, C>;
    case ScalarType::i64:
      return write_whole<int64_t, C>;
    case ScalarType::f16:
      return [](char* at, C value) { write_as<f16>(at, to_f16(static_cast<float>(value))); };
    case ScalarType::bf16:
      return [](char* at, C value) { write_as<bf16>(at, to_bf16(static_cast<float>(value))); };
    case ScalarType::f32:
      return write_as<float, C>;
    case ScalarType::f64:
      return write_as<double, C>;
    case ScalarType::f8_e4m3:
    case ScalarType::f8_e5m2:
      break;
  }
  throw LeftError("values of 8-bit floats are not computed");
}

// Calls `compute` with a number of the type in which elements of `type` are computed.
template <class Compute>
auto in_type_of(ScalarType type, Compute compute) {
  if (type == ScalarType::f64) return compute(double{});
  return is_floating(type) ? compute(float{}) : compute(int64_t{});
}

}  // namespace dstrain::exported
