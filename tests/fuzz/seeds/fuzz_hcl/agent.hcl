datacenter = "dc1"
ports { http = 8500, dns = -1 }
limits { rate = 1.5e3 most = 0x1F mode = 0640 small = .5 }
services = [{ name = "a", tags = ["x", "y",] }, {}]
check "a" b { script = <<-EOT
    one
    two ${x "}" \t}
    EOT
}
text = "\a\n\"\\ \101 \x41 \u00e4 \U0001F600 ${f("x\t") { }}"
last = <<E
E
