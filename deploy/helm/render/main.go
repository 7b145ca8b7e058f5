// Renders the chart where there is no helm: text/template with the functions of sprig, and toYaml, include and required.
// Usage: render CHART RELEASE [values.yaml…]
// Build: GO111MODULE=off GOPATH=/usr/share/gocode go build main.go (Debian: golang-go, golang-github-masterminds-sprig-dev).
// It stands in for `helm template` in checks; it does no more than this chart needs, and installs nothing.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type object = map[string]interface{}

func read(path string) (object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := object{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// merge puts values over base, as helm does: sections are merged, lists and everything else are replaced.
func merge(base, values object) object {
	for key, value := range values {
		section, isSection := value.(object)
		below, wasSection := base[key].(object)
		if isSection && wasSection {
			base[key] = merge(below, section)
		} else {
			base[key] = value
		}
	}
	return base
}

func functions(chart *template.Template) template.FuncMap {
	known := sprig.TxtFuncMap()
	delete(known, "env") // as helm
	delete(known, "expandenv")
	known["toYaml"] = func(value interface{}) (string, error) {
		var text bytes.Buffer
		encoder := yaml.NewEncoder(&text)
		encoder.SetIndent(2)
		err := encoder.Encode(value)
		return strings.TrimSuffix(text.String(), "\n"), err
	}
	known["include"] = func(name string, data interface{}) (string, error) {
		var text bytes.Buffer
		err := chart.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	known["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	return known
}

func render(folder, release string, files []string) error {
	about, err := read(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return err
	}
	values := object{}
	for _, file := range append([]string{filepath.Join(folder, "values.yaml")}, files...) {
		more, err := read(file)
		if err != nil {
			return err
		}
		values = merge(values, more)
	}
	chart := object{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]}
	data := object{"Values": values, "Chart": chart, "Release": object{"Name": release, "Namespace": "default", "Service": "Helm"}}

	templates := template.New("chart")
	templates.Funcs(functions(templates)).Option("missingkey=zero")
	names, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil {
		return err
	}
	for _, name := range names { // in the order of their names
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := templates.New(filepath.Base(name)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, name := range names {
		base := filepath.Base(name)
		if strings.HasPrefix(base, "_") || !strings.HasSuffix(base, ".yaml") {
			continue
		}
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, base, data); err != nil {
			return err
		}
		if shown := strings.TrimSpace(text.String()); shown != "" {
			fmt.Printf("---\n# Source: %s\n%s\n", base, shown)
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: render CHART RELEASE [values.yaml…]")
		os.Exit(2)
	}
	if err := render(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
