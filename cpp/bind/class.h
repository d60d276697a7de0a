// Python classes whose construction survives a failed allocation.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

namespace mudd::bind {

// A py::class_ that frees an object once if pybind11 has no memory to register it: otherwise the caller's
// unique_ptr and the incomplete Python object both free it (docs/decisions/own.md, "py::class_ is wrapped").
template <typename T, typename... Options>
class Class : public pybind11::class_<T, Options...> {
 public:
  template <typename... Extra>
  Class(pybind11::handle scope, const char* name, const Extra&... extra)
      : pybind11::class_<T, Options...>(scope, name, extra...) {
    pybind11::detail::type_info* type = pybind11::detail::get_type_info(typeid(T));
    register_ = std::exchange(type->init_instance, &guarded);
  }

 private:
  static void guarded(pybind11::detail::instance* object, const void* holder) {
    try {
      register_(object, holder);
    } catch (...) {
      auto place = object->get_value_and_holder(pybind11::detail::get_type_info(typeid(T)));
      // With a holder the caller owns the value, else the object does.
      if (!holder && object->owned) delete place.template value_ptr<T>();
      place.value_ptr() = nullptr;
      throw;
    }
  }

  static inline void (*register_)(pybind11::detail::instance*, const void*) = nullptr;
};

// Keeps argument `Argument` (self is 1) alive as long as the constructed object. Replaces py::keep_alive<1,
// Argument>, which ends the process if there is no memory to note the argument.
template <size_t Argument>
struct Keeps {};

// Return the constructor of T with these arguments. py::init<Arguments...> registers the object outside
// pybind11's try block, where std::bad_alloc ends the process.
template <typename T, typename... Arguments>
auto init() {
  return pybind11::init(
      [](Arguments... arguments) { return std::make_unique<T>(std::forward<Arguments>(arguments)...); });
}

}  // namespace mudd::bind

namespace pybind11::detail {

template <size_t Argument>
struct process_attribute<mudd::bind::Keeps<Argument>> : process_attribute_default<mudd::bind::Keeps<Argument>> {
  static void precall(function_call& call) {
    const handle object = call.init_self, argument = call.args[Argument - 1];
    if (argument.is_none()) return;
    with_internals([&](internals& all) {
      std::vector<PyObject*>& kept = all.patients[object.ptr()];
      reinterpret_cast<instance*>(object.ptr())->has_patients = true;
      kept.push_back(argument.ptr());
      argument.inc_ref();
    });
  }
};

}  // namespace pybind11::detail
