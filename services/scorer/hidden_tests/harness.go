package main

import (
	"encoding/json"
	"os"
	"reflect"
)

func main() {
	out := os.Stdout
	os.Stdout = os.Stderr
	var asked struct {
		Arguments []json.RawMessage `json:"arguments"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	function := reflect.ValueOf(FUNCTION)
	var given []reflect.Value
	kind := function.Type()
	for at, text := range asked.Arguments {
		var in reflect.Type
		if last := kind.NumIn() - 1; kind.IsVariadic() && at >= last {
			in = kind.In(last).Elem()
		} else {
			in = kind.In(at)
		}
		value := reflect.New(in)
		if err := json.Unmarshal(text, value.Interface()); err != nil {
			panic(err)
		}
		given = append(given, value.Elem())
	}
	result := function.Call(given)[0]
	if result.Kind() == reflect.Slice && result.IsNil() {
		result = reflect.MakeSlice(result.Type(), 0, 0)
	}
	written, err := json.Marshal(result.Interface())
	if err != nil {
		panic(err)
	}
	out.Write(written)
}
