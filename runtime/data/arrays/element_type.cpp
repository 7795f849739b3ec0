#include "runtime/data/arrays/element_type.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Calls visit with a value of the C++ type that elements of the type have in files.
template <class Visit>
auto with_type(ElementType type, const Visit& visit) {
  switch (type) {
    case ElementType::boolean:
      return visit(bool{});
    case ElementType::u8:
      return visit(uint8_t{});
    case ElementType::i8:
      return visit(int8_t{});
    case ElementType::u16:
      return visit(uint16_t{});
    case ElementType::i16:
      return visit(int16_t{});
    case ElementType::u32:
      return visit(uint32_t{});
    case ElementType::i32:
      return visit(int32_t{});
    case ElementType::u64:
      return visit(uint64_t{});
    case ElementType::i64:
      return visit(int64_t{});
    case ElementType::f16:
      return visit(f16{});
    case ElementType::bf16:
      return visit(bf16{});
    case ElementType::f32:
      return visit(float{});
    case ElementType::f64:
      return visit(double{});
  }
  throw InternalError("elements of no type");
}

// Returns the element at an address that need not be aligned: an integer, f32 or f64.
template <class T>
auto load(const unsigned char* at) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<uint8_t>(*at != 0);  // other bytes than 0 and 1 are no values of a bool
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return *at < 128 ? int{*at} : int{*at} - 256;
  } else {
    T value;
    std::memcpy(&value, at, sizeof(T));
    if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
      return to_float(value);
    else
      return value;
  }
}

template <class To, class From>
constexpr bool fits(From value) {
  if constexpr (std::is_same_v<To, float>) {
    if constexpr (std::is_same_v<From, double>)
      return !std::isfinite(value) || std::isfinite(static_cast<float>(value));
    return true;
  } else if constexpr (std::is_floating_point_v<From>) {
    constexpr double least = std::numeric_limits<int32_t>::min(),
                     most = std::numeric_limits<int32_t>::max();
    const auto wide = static_cast<double>(value);
    return wide >= least && wide <= most && wide == std::trunc(wide);
  } else {
    return std::in_range<int32_t>(value);
  }
}

template <class T, class To>
int64_t convert(const unsigned char* elements, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto value = load<T>(elements + i * static_cast<int64_t>(sizeof(T)));
    if (!fits<To>(value)) return i;
    to[i] = static_cast<To>(value);
  }
  return -1;
}

template <class T, class To>
int64_t unfit(const unsigned char* elements, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!fits<To>(load<T>(elements + i * static_cast<int64_t>(sizeof(T))))) return i;
  return -1;
}

}  // namespace

int64_t size_of(ElementType type) {
  return with_type(type, [](auto value) { return static_cast<int64_t>(sizeof(value)); });
}

std::string_view name_of(ElementType type) {
  constexpr std::string_view names[] = {"bool", "u8",  "i8",  "u16",  "i16", "u32", "i32",
                                        "u64",  "i64", "f16", "bf16", "f32", "f64"};
  return names[static_cast<int>(type)];
}

bool may_not_fit(ElementType from, DType to) {
  if (to == DType::f32) return from == ElementType::f64;
  return from == ElementType::u32 || from >= ElementType::u64;
}

int64_t convert_elements(ElementType from, const unsigned char* elements, int64_t count,
                         DType dtype, void* to) {
  const bool same = (from == ElementType::f32 && dtype == DType::f32) ||
                    (from == ElementType::i32 && dtype == DType::i32);
  if (same) {
    std::memcpy(to, elements, static_cast<size_t>(count * size_of(dtype)));
    return -1;
  }
  return with_type(from, [&](auto value) {
    using T = decltype(value);
    return dtype == DType::f32 ? convert<T>(elements, count, static_cast<float*>(to))
                               : convert<T>(elements, count, static_cast<int32_t*>(to));
  });
}

int64_t first_unfit(ElementType from, const unsigned char* elements, int64_t count, DType dtype) {
  if (!may_not_fit(from, dtype)) return -1;
  return with_type(from, [&](auto value) {
    using T = decltype(value);
    return dtype == DType::f32 ? unfit<T, float>(elements, count)
                               : unfit<T, int32_t>(elements, count);
  });
}

std::string element_text(ElementType type, const unsigned char* element) {
  return with_type(type,
                   [&](auto value) { return fmt::format("{}", load<decltype(value)>(element)); });
}

}  // namespace dstrain
