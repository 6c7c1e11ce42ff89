// Gen writes docs/CONFIG.md to standard output. It is run by make gen.
package main

import (
	"log"
	"os"

	"headstart/cmd/config"
)

func main() {
	if err := config.WriteDoc(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
