#include "runtime/core/formats/pickle/pickle.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/pickle/pickle_text.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Make = PickleText;

// Returns what is wrong with these bytes; empty if nothing is.
std::string pickle_fault(const std::string& bytes) {
  try {
    const Pickle pickle(bytes, "a.pt: data.pkl");
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Contains("a.pt: data.pkl, byte "));
    return e.what();
  }
  return {};
}

std::string faults(const std::string& opcodes) {
  return pickle_fault(Make::of(opcodes));
}

TEST_CASE("a pickle's values are read without a call") {
  const Pickle pickle(
      Make::of(Make::dict({Make::text("a"), Make::integer(-5), Make::text("b"),
                           Make::call(Make::name("os", "system"), {Make::text("ls")}),
                           Make::text("a"), Make::numbers({1, 2})})),
      "p");
  const PickleValue root = pickle.root();
  REQUIRE(root.is(PickleKind::dict));
  CHECK(root.pairs() == 3);
  CHECK(root.size() == 0);
  CHECK(root.value(0).integer() == -5);
  REQUIRE(root.find("a"));  // the last of its name, as in Python
  CHECK((*root.find("a"))[1].integer() == 2);
  CHECK_FALSE(root.find("c"));
  const PickleValue object = *root.find("b");
  CHECK(object.is(PickleKind::object));
  CHECK(object.is_named("os.system"));
  CHECK_FALSE(object.is_named("os.syste"));
  CHECK_FALSE(object.is_named("osXsystem"));
  CHECK(object.arguments()[0].text() == "ls");
  CHECK(object.state().is(PickleKind::none));
  CHECK_THROWS_WITH(object.fail("no {}", "use"), Contains("p, byte ") && Contains(": no use"));
}

TEST_CASE("every opcode of protocols 2 to 5 is read") {
  const auto value = [](const std::string& opcodes) {
    return std::make_unique<Pickle>("\x80\x05" + opcodes + ".", "p");
  };
  using namespace std::string_literals;
  CHECK(value("K\xff")->root().integer() == 255);
  CHECK(value("M\x01\x02")->root().integer() == 0x201);
  CHECK(value("J\xfe\xff\xff\xff")->root().integer() == -2);
  CHECK(value("\x8a\x00"s)->root().integer() == 0);
  CHECK(value("\x8a\x01\x80")->root().integer() == -128);
  CHECK(value("\x8b\x02\x00\x00\x00\x00\x80"s)->root().integer() == -32768);
  CHECK(value("\x8a\x09"
              "123456789")
            ->root()
            .is(PickleKind::large_integer));
  CHECK(value("G\x3f\xf8\x00\x00\x00\x00\x00\x00"s)->root().real() == 1.5);
  CHECK(value("N")->root().is(PickleKind::none));
  CHECK(value("\x88")->root().integer() == 1);
  CHECK(value("\x8c\x02xy")->root().text() == "xy");
  CHECK(value("\x8d\x02\0\0\0\0\0\0\0xy"s)->root().text() == "xy");
  CHECK(value("U\x01x")->root().text() == "x");
  for (const std::string& bytes :
       {"C\x01x"s, "B\x01\0\0\0x"s, "\x8e\x01\0\0\0\0\0\0\0x"s, "\x96\x01\0\0\0\0\0\0\0x"s}) {
    CHECK(value(bytes)->root().is(PickleKind::bytes));
    CHECK(value(bytes)->root().text() == "x");
  }
  CHECK(value("](K\x01K\x02"
              "e")
            ->root()
            .size() == 2);
  CHECK(value("]K\x01"
              "a")
            ->root()[0]
            .integer() == 1);
  CHECK(value("(K\x01K\x02l")->root().is(PickleKind::list));
  CHECK(value("\x8f(K\x01\x90")->root().size() == 1);
  CHECK(value("(K\x01\x91")->root().is(PickleKind::set));
  CHECK(value("K\x01\x85")->root().size() == 1);
  CHECK(value("K\x01K\x02\x86")->root()[1].integer() == 2);
  CHECK(value("NK\x01K\x02\x87")->root()[2].integer() == 2);
  CHECK(value(")")->root().is(PickleKind::tuple));
  CHECK(value("}K\x01K\x02s")->root().pairs() == 1);
  CHECK(value("(K\x01K\x02"
              "d")
            ->root()
            .value(0)
            .integer() == 2);
  CHECK(value("K\x01K\x02"
              "0")
            ->root()
            .integer() == 1);
  CHECK(value("K\x01(K\x02"
              "1")
            ->root()
            .integer() == 1);
  CHECK(value("K\x01(0")->root().integer() == 1);
  CHECK(value("K\x01"
              "2\x86")
            ->root()[1]
            .integer() == 1);
  CHECK(value("K\x07q\x00"
              "0h\x00"s)
            ->root()
            .integer() == 7);
  CHECK(value("K\x07\x94"
              "0j\x00\x00\x00\x00"s)
            ->root()
            .integer() == 7);
  CHECK(value("K\x07r\x01\x00\x00\x00"
              "0h\x01"s)
            ->root()
            .integer() == 7);
  CHECK(value("\x95\x02\0\0\0\0\0\0\0K\x01"s)->root().integer() == 1);
  CHECK(value("U\x01mU\x01n\x93")->root().is_named("m.n"));
  CHECK(value("cm\nn\n)\x81}b")->root().state().is(PickleKind::dict));
  CHECK(value("cm\nn\n)}\x92")->root().is_named("m.n"));
  CHECK(value("K\x01Q")->root().arguments().integer() == 1);
}

TEST_CASE("collections whose elements alone matter are what they hold") {
  const Pickle ordered(Make::of(Make::call(Make::name("collections", "OrderedDict"), {}) + "(" +
                                Make::text("a") + "Nu"),
                       "p");
  CHECK(ordered.root().is(PickleKind::dict));
  CHECK(ordered.root().find("a"));
  const Pickle size(Make::of(Make::call(Make::name("torch", "Size"), {Make::numbers({2, 3})})),
                    "p");
  CHECK(size.root()[1].integer() == 3);
}

TEST_CASE("a list may be its own element") {
  const Pickle pickle(Make::of(std::string("]q\0h\0a", 6)), "p");
  CHECK(pickle.root()[0] == pickle.root());
}

TEST_CASE("a pickle that is cut short is refused at any byte") {
  const std::string whole =
      Make::of(Make::dict({Make::text("a"), Make::tensor({}), Make::text("b"), Make::integer(3)}));
  CHECK(pickle_fault(whole).empty());
  for (size_t n = 0; n < whole.size(); ++n) CHECK_FALSE(pickle_fault(whole.substr(0, n)).empty());
  CHECK_THAT(pickle_fault(whole + "N"), Contains("1 bytes follow its end"));
}

TEST_CASE("hostile opcodes are refused with their byte") {
  using namespace std::string_literals;
  CHECK_THAT(pickle_fault("\x80\x01N."), Contains("its protocol is 1"));
  CHECK_THAT(pickle_fault("\x80\x06N."), Contains("its protocol is 6"));
  CHECK_THAT(pickle_fault("(dp0\n."),
             Contains("byte 0: it does not begin as a pickle of protocol 2"));
  CHECK_THAT(faults("i"), Contains("byte 2: the opcode 0x69"));
  CHECK_THAT(faults("\x82\x01"), Contains("the opcode 0x82"));
  CHECK_THAT(faults("\x97"), Contains("the opcode 0x97"));
  CHECK_THAT(faults("X\xff\xff\xff\xff"),
             Contains("ends within a text, which has 4294967295 bytes"));
  CHECK_THAT(faults("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), Contains("ends within a text"));
  CHECK_THAT(faults("\x8b\xff\xff\xff\xff"), Contains("an integer has -1 bytes"));
  CHECK_THAT(faults("r\x00\x00\x00\x00"s), Contains("takes a value that is not there"));
  CHECK_THAT(faults("Nr\xff\xff\xff\xff"), Contains("keeps a value at the place 4294967295"));
  CHECK_THAT(faults("h\x00"s), Contains("place 0, where it has kept none"));
  CHECK_THAT(faults("Nr\x01\x00\x00\x00h\x00"s), Contains("place 0, where it has kept none"));
  CHECK_THAT(faults("a"), Contains("adds to a value that is not there") || Contains("not there"));
  CHECK_THAT(faults("]a"), Contains("not there"));
  CHECK_THAT(faults("](Na"), Contains("not there"));
  CHECK_THAT(faults("NNa"), Contains("adds elements to None"));
  CHECK_THAT(faults("e"), Contains("a collection ends that has not begun"));
  CHECK_THAT(faults("(e"), Contains("not there"));
  CHECK_THAT(faults("}(Nu"), Contains("a key has no value"));
  CHECK_THAT(faults("(Nd"), Contains("a key has no value"));
  CHECK_THAT(faults("](NNu"), Contains("adds keys to a list"));
  CHECK_THAT(faults("NNR"), Contains("the arguments of a call are None"));
  CHECK_THAT(faults("N}b"), Contains("gives attributes to None"));
  CHECK_THAT(faults("NN\x93"), Contains("a name of Python's is no text"));
  CHECK_THAT(faults("cos\nsystem"), Contains("ends within a name"));
  CHECK_THAT(faults("(N"), Contains("ends within a collection"));
  CHECK_THAT(faults("NN"), Contains("ends with 2 values"));
  CHECK_THAT(faults(""), Contains("ends with 0 values"));
  CHECK_THAT(faults("N(\x86"), Contains("not there"));
  CHECK_THAT(faults("(\x85"), Contains("not there"));
  CHECK_THAT(faults("\x95\xff\0\0\0\0\0\0\0N"s),
             Contains("a frame of 255 bytes reaches over the end"));
}

TEST_CASE("many marks and values take memory as the bytes that state them") {
  CHECK_THAT(faults(std::string(1 << 20, '(')), Contains("ends within a collection"));
  CHECK_THAT(faults(std::string(1 << 20, ']')), Contains("ends with 1048576 values"));
  CHECK_THROWS_WITH(Pickle(std::string(kLargestPickle + 1, 'N'), "p"),
                    Contains("expected at most"));
}

}  // namespace
}  // namespace dstrain
