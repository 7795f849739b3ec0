// Valid, damaged and hostile .npy files.
#include "runtime/data/arrays/npy.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/data/arrays/array_files.h"

namespace dstrain {
namespace {

using Catch::Contains;

std::string npy_fault(const std::string& bytes) {
  try {
    parse_npy(bytes, "a.npy");
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Contains("a.npy"));
    return e.what();
  }
  return "none";
}

std::string fault_of_header(const std::string& dictionary) {
  return npy_fault(npy_with(dictionary, std::string(24, 'x')));
}

}  // namespace

TEST_CASE("a .npy file says its type, order and shape, in versions 1 to 3") {
  const std::string data(24, 'x');
  for (const int version : {1, 2, 3}) {
    const std::string bytes = npy("<f4", "(2, 3)", data, false, version);
    const NpyHeader header = parse_npy(bytes, "a.npy");
    CHECK(header.descr == "<f4");
    CHECK(header.type == ElementType::f32);
    CHECK(!header.fortran_order);
    CHECK(header.shape == std::vector<int64_t>{2, 3});
    CHECK(header.begin == static_cast<int64_t>(bytes.size()) - 24);
    CHECK(is_npy(bytes));
  }
  CHECK(parse_npy(npy("<f4", "(2, 3)", data, true), "a.npy").fortran_order);
  CHECK(!parse_npy(npy("<f4", "(6,)", data, true), "a.npy").fortran_order);
  CHECK(parse_npy(npy("<i8", "()", data.substr(0, 8)), "a.npy").shape.empty());
  CHECK(parse_npy(npy("<i8", "(0, 7)", ""), "a.npy").shape == std::vector<int64_t>{0, 7});
  CHECK(parse_npy(npy_with(R"({"shape":(24,),"fortran_order":False,"descr":"|u1"})", data), "a.npy")
            .type == ElementType::u8);
}

TEST_CASE("every type of NumPy's that models read has its name, and others none") {
  using enum ElementType;
  const std::pair<std::string_view, ElementType> types[] = {
      {"|b1", boolean}, {"|u1", u8},  {"|i1", i8},  {"<u2", u16}, {"<i2", i16}, {"<u4", u32},
      {"<i4", i32},     {"<u8", u64}, {"<i8", i64}, {"<f2", f16}, {"<f4", f32}, {"<f8", f64}};
  for (const auto& [descr, type] : types) {
    INFO(descr);
    const std::string data(static_cast<size_t>(size_of(type)), '\0');
    CHECK(parse_npy(npy(descr, "(1,)", data), "a.npy").type == type);
  }
  for (const std::string_view descr : {">f4", "|O", "<U5", "<c8", "<V2", "|f4", "<M8[ns]"})
    CHECK(!parse_npy(npy(descr, "(1,)", "data"), "a.npy").type);
  const NpyHeader fields = parse_npy(
      npy_with("{'descr': [('a', '<f4'), ('', '|V4')], 'fortran_order': False, 'shape': (1,), }",
               "data"),
      "a.npy");
  CHECK(!fields.type);
  CHECK(fields.descr == "[('a', '<f4'), ('', '|V4')]");
}

TEST_CASE("a .npy file that is damaged, cut short or hostile is an error") {
  CHECK_THAT(npy_fault("NUMPY"), Contains("does not begin with NumPy's mark"));
  CHECK_THAT(npy_fault("\x93NUMPY\x01"), Contains("cut short in its header"));
  CHECK_THAT(npy_fault(std::string("\x93NUMPY\x02\0\x10\0", 10)),
             Contains("cut short in its header"));
  CHECK_THAT(npy_fault(std::string("\x93NUMPY\x04\0\x10\0\0\0", 12)), Contains("version 4"));
  CHECK_THAT(npy_fault(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12)),
             Contains("states a header of 4294967295 bytes, expected at most 1048576"));
  CHECK_THAT(npy_fault(std::string("\x93NUMPY\x01\0\x40\0{", 11)),
             Contains("states a header of 64 bytes, and 1 follow"));
  const std::string good = npy("<f4", "(2, 3)", std::string(24, 'x'));
  CHECK(npy_fault(good) == "none");
  CHECK_THAT(npy_fault(good + "x"), Contains("f32 of shape (2, 3) takes 24 bytes, and 25 follow"));
  CHECK_THAT(npy_fault(good.substr(0, good.size() - 1)), Contains("24 bytes, and 23 follow"));
  for (size_t size = 0; size < good.size(); ++size)
    CHECK(npy_fault(good.substr(0, size)) != "none");
  CHECK_THAT(npy_fault(npy("<f8", "(4294967296, 4294967296)", "")), Contains("overflows"));
  CHECK_THAT(npy_fault(npy("<f8", "(9223372036854775807,)", "")), Contains("overflows"));
}

TEST_CASE("a header that is not the dictionary of an array is an error") {
  const auto fields = [](std::string_view rest) {
    return fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}", rest);
  };
  CHECK(fault_of_header(fields("(6,)}")) == "none");
  CHECK_THAT(fault_of_header(fields("(6,)} x")), Contains("text follows the dictionary"));
  CHECK_THAT(fault_of_header(fields("(6,)")), Contains("is not '}'"));
  CHECK_THAT(fault_of_header(fields("(6, -1)}")), Contains("no size is at byte"));
  CHECK_THAT(fault_of_header(fields("(99999999999999999999,)}")), Contains("no size is at byte"));
  CHECK_THAT(fault_of_header(fields("(6}")), Contains("is not ')'"));
  CHECK_THAT(fault_of_header(fields("6}")), Contains("is not '('"));
  std::string many = "(";
  for (int i = 0; i < 33; ++i) many += "1,";
  CHECK_THAT(fault_of_header(fields(many + ")}")), Contains("more than 32 sizes"));
  CHECK_THAT(fault_of_header(fields("(6,), 'shape': (6,)}")), Contains("'shape' comes twice"));
  CHECK_THAT(fault_of_header(fields("(6,), 'more': 1}")), Contains("none of the format's"));
  CHECK_THAT(fault_of_header("{'fortran_order': False, 'shape': (6,)}"), Contains("lacks descr"));
  CHECK_THAT(fault_of_header("{'descr': '<f4', 'shape': (6,)}"), Contains("lacks fortran_order"));
  CHECK_THAT(fault_of_header("{'descr': '<f4', 'fortran_order': False}"), Contains("lacks shape"));
  CHECK_THAT(fault_of_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}"),
             Contains("neither True nor False"));
  CHECK_THAT(fault_of_header("{'descr: 6}"), Contains("has no end"));
  CHECK_THAT(fault_of_header("{'descr': [[['a'"), Contains("has no end"));
  CHECK_THAT(fault_of_header("{descr"), Contains("no text in quotes"));
  CHECK_THAT(fault_of_header(""), Contains("is not '{'"));
}

}  // namespace dstrain
