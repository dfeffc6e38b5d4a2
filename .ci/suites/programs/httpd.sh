# Apache's server with its threads for events, in the foreground: `httpd.sh PORT`.
mkdir pages
echo hello > pages/index.html
chmod -R a+rX .
modules=/usr/lib/apache2/modules
cat > httpd.conf <<CONF
ServerRoot $PWD
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule dir_module $modules/mod_dir.so
Listen 127.0.0.1:$1
ServerName localhost
PidFile $PWD/pid
ErrorLog $PWD/errors
DocumentRoot $PWD/pages
DirectoryIndex index.html
User www-data
Group www-data
MaxKeepAliveRequests 0
# One process: where one is started or ended for the load, connections that are kept alive end.
StartServers 1
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
MaxSpareThreads 64
<Directory />
Require all granted
</Directory>
CONF
exec /usr/sbin/apache2 -f "$PWD/httpd.conf" -DFOREGROUND
